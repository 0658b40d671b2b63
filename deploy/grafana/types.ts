// Types of the dashboards: those of @grafana/schema, narrowed to the panels, options and queries that dashboards.py makes.
// `cargo xtask prometheus` compiles each dashboard against them.

import type { AnnotationQuery, Dashboard, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type {
  FieldConfig as TimeSeriesFieldConfig,
  Options as TimeSeriesOptions,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';

/** JSON has the values of enums. */
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

type Source = { type: 'prometheus'; uid: '${datasource}' };

/** A query of the data source for Prometheus, whose types are not in the schema. */
type Query = {
  refId: string;
  datasource: Source;
  expr: string;
  legendFormat: string;
  range: boolean;
  instant: boolean;
  editorMode: 'code' | 'builder';
};

type Base = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets' | 'datasource'> & {
  datasource: Source;
  targets: Query[];
};

type TimeSeries = Base & {
  type: 'timeseries';
  options: TimeSeriesOptions;
  fieldConfig: NonNullable<Panel<TimeSeriesOptions, TimeSeriesFieldConfig>['fieldConfig']>;
};

type Stat = Base & {
  type: 'stat';
  options: StatOptions;
  fieldConfig: NonNullable<Panel<StatOptions>['fieldConfig']>;
};

type Marks = Omit<AnnotationQuery, 'target' | 'datasource'> & {
  datasource: Source;
  target: Query;
  titleFormat: string;
};

export type LibraDashboard = Plain<
  Omit<Dashboard, 'annotations' | 'panels' | 'templating'> & {
    annotations: { list: Marks[] };
    panels: Array<RowPanel | TimeSeries | Stat>;
    templating: { list: VariableModel[] };
    uid: string;
  }
>;
